"""Knowledge distillation without data: images that a generator makes up teach one network what an ensemble knows."""
