"""Language models: z is the mean negative log-likelihood per predicted token."""
