"""The science of the benchmark; it knows nothing of orchestration, tracking and versioning.

Words, each with one meaning throughout:

* experiment: what one settings file describes and one command runs, such as `benchmark`; a package of `experiments`.
* job: a named computation whose result the store keeps; jobs form a graph by their needs.
* step: everything that can change a job's result, and hence its key. A step's or an artifact's kind is what it makes,
  the folder's name in the store.
* federation: clients and a server at one point of the settings (a cell: data set, network, split, seed); its place is
  the cell with the settings and the device.
* statistic: what a client computes at its trained network and sends; its structure says how a budget shortens it.
* upload, payload: the statistics that one client sends to one method; the same as bytes.
* method: makes a global network, or a prediction, of uploads.
* privacy: differential privacy of what clients release. attack: a model inversion by the server, or by whoever sees
  what it sees; a victim is what one attack is on.
* ensemble: one shot too, but every prediction takes several networks, mostly those of all clients; it is not compared
  with the methods of one network.
* reference: a row that methods are measured against, and that no one-shot method could be.
* plug-in: a package that adds any of these through an entry point.
"""
