"""Label counts say nothing of images to an attacker who knows that the client holds the target label."""

from fedfisher_core.attack.evidence import says_nothing_of_images
from fedfisher_core.client.label_counts import LabelCounts

says_nothing_of_images(LabelCounts)
