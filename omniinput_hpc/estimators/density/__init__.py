"""The density of outputs, log g(z), reweighted from the histograms of all rungs."""
