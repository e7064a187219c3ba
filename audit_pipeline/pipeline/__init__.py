"""What an audit is made of, what of it is out of date, and what brings it up to date."""
