"""Secure aggregation: the server learns the sum of what clients add, and nothing else of what a client holds.

Public, because everybody knows it before the first message (`Terms`): who is invited, the threshold, the names and
shapes of the tensors, the range and the width of their numbers, and the session's name. None of it depends on a
client's data.

What the server sees besides: which clients stop, and at which message; when messages arrive, whose sizes follow from
what is public; and, once it has unmasked them, the sums over those clients whose upload arrived. Among these are the
number of their examples and how many of their numbers were cut off at the range. It sees no client's own number of
examples and nothing of the size of its tensors. A client that refuses to go on says why to itself alone.

What no protocol hides is what the sums themselves tell. Each of two clients finds the other's tensors by taking away
its own. Whoever has two sums of the same tensors, with and without a client, has that client's.

The server and its colluding clients can be of two kinds. One that follows the protocol but is curious learns no more
as long as fewer than `threshold` clients collude with it. One that is active may also send wrong messages; then keys
are signed, clients make sure that all were told of the same survivors, and no more is learned as long as fewer than
2 threshold - n of n clients collude (Bonawitz et al. 2017, section 6). It can always make the sum wrong, or stop.
"""
