"""Alerts: which findings changed, and sending an alert.

What belongs here: comparing two states of the findings (changes.py), and delivering an alert (deliver.py). What does
not: the sensors, which say when to look and name the kind of alert (operate/dagster/alerting.py).

Another kind of change is made in changes.py alone. An alert about something else is a sensor in
operate/dagster/alerting.py, and a module here that works out what it says.
"""
