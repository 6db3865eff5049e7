"""Questions, and statements on the same topics, without punctuation."""

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
STATEMENTS = """the railway station lies behind the market
the museum opens at ten on sunday
this old bicycle costs forty euros
the committee rejected our proposal yesterday
my cousin wrote the song that played last night
the new bridge will be finished in june
both roads lead to the village
about nine thousand people live in our town
we visited the northern islands two years ago
the engineer explained how this machine works
they sell fresh bread every afternoon
a doctor was sitting on the train
your blue umbrella stands behind the door
my address is written on the envelope
the shops close early at this time of year
the teacher praised us after the exam
a fisherman rents small boats near the beach
the journey usually takes three hours
the cook cleans the kitchen every night
the sky turned red in the evening
my brother still plays the piano
she drank another cup of tea
that tall tree is an old chestnut
the next bus leaves for the harbour at noon
the carpenter repaired the broken window
everybody speaks two languages in this valley""".splitlines()
