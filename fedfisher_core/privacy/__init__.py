"""Differential privacy of clients: training and statistics that hide whether any one example was there.

Two data sets of a client are neighbours when they agree in all but one example, which one of them replaces by an
example that adds nothing to any sum ("zero-out"). Both have n_i examples. n_i is public: it is sent in the clear with
an upload, and sampling rates, numbers of steps, means and the weights of clients depend on it. Numbers of examples
of a class are not public, and can't be released. To exchange an example for another takes two such changes, which
cost at most (2 epsilon, (1 + e^epsilon) delta).

The guarantee covers what clients upload. It needs two things more: the server looks at validation images only where
`data.public_validation` says that they are public, and no two clients release the same example.
"""
