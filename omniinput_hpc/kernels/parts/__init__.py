"""What several kernels share: draws from categories, gradients, conditionals, random numbers."""
