"""One table over all reports: every method in every setting, with its rank."""
