"""What a study computes without the usual training: f(seed, **arguments) -> {metric: number}."""
