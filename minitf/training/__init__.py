"""Training: the objective, the Lightning task, optimizers, schedules, checkpoints and metrics of a run."""
