"""The density of outputs, log g(z): many rungs' histograms reweighted into one."""
