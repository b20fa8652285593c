"""Secure aggregation: the server learns the sum of what clients add, and nothing else of what a client holds.

`Terms` are public before the first message: the invited clients, the threshold, the names and shapes of the tensors,
the range and the width of their numbers, and the session's name. None of it depends on a client's data.

The server also sees which clients stop, and at which message; when messages arrive, whose sizes follow from public
terms; and, once it has unmasked them, the sums over those clients whose upload arrived. Among these are the
number of their examples and how many of their numbers were cut off at the range. It sees no client's own number of
examples and nothing of the size of its tensors. A client that refuses to go on tells no one else why.

No protocol hides what the sums themselves tell. Each of two clients finds the other's tensors by subtracting
its own. A person who has two sums of the same tensors, with and without a client, has that client's tensors.

The server and the clients that collude with it can be of two kinds. A curious server follows the protocol. It learns no
more as long as fewer than `threshold` clients collude with it. An active server may also send wrong messages. Then keys
are signed, and clients make sure that all were told of the same survivors. It learns no more as long as fewer than
2 threshold - n of n clients collude (Bonawitz et al. 2017, section 6). It can always make the sum wrong, or stop.
"""
