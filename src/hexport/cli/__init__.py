"""The command line: one thin file a verb. Parse, call the API, render; no logic here."""
