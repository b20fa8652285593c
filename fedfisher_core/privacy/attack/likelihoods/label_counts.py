"""Label counts say nothing of images to an attacker who knows that the client holds the target label."""

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.privacy.attack.evidence import Likelihood, likelihoods

likelihoods.add(LabelCounts.name, Likelihood())
