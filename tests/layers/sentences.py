"""Questions without punctuation."""

QUESTIONS = """where is the nearest railway station
what time does the museum open on sunday
how much does this old bicycle cost
why did the committee reject our proposal
who wrote the song that played last night
when will the new bridge be finished
which of these two roads leads to the village
how many people live in your town
did you ever visit the northern islands
can anyone explain how this machine works
do they sell fresh bread in the afternoon
is there a doctor on this train
have you seen my blue umbrella
could you tell me your address please
are the shops still open at this hour
what did the teacher say about the exam
where can we rent a small boat
how long does the journey usually take
who is responsible for cleaning the kitchen
why is the sky red in the evening
does your brother still play the piano
would you like another cup of tea
what is the name of that tall tree
when does the next bus leave for the harbour
how do you repair a broken window
which language do they speak in this valley""".splitlines()
