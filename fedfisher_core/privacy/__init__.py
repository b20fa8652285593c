"""Differential privacy of clients: training and statistics that hide whether any one example was there.

Two data sets of a client are neighbours when they agree in all but one example, in whose place one of them has an
example that adds nothing to any sum ("zero-out"). Both have n_i examples. n_i is public: it is sent in the clear with
an upload, and sampling rates, numbers of steps, means and the weights of clients are made of it. Numbers of examples
of a class are not public, and can't be released. To exchange an example for another takes two such changes, which
cost at most 2 epsilon.

The guarantee covers what clients upload. Beside it, the server may look at validation images only where
`data.public_validation` says that they are public, and all examples are released by one client each.
"""
