"""What is wrong with this installation and this machine, and the commands that fix it."""
