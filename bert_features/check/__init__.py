"""What is wrong here, and the commands that fix it; whether devices compute the right numbers."""
