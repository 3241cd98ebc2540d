"""One class per subject: what is printed, written, recorded and drawn of an estimate."""
