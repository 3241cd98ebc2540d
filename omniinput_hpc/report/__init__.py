"""The report: one HTML page about runs that needs nothing else, on the screen or on paper.

`content` estimates, `sections` chooses what to say, `page` fills the templates and draws.
"""

import omniinput_hpc.plots  # noqa: F401  (before matplotlib: MPLBACKEND may be wrong)
