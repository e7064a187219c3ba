"""What is done and what is to be done."""
