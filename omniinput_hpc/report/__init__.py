"""The report: one HTML page about runs that needs nothing else, on the screen or on paper.

`page` writes HTML, `pictures` puts figures into it, `sections` says what a run's part holds.
"""
