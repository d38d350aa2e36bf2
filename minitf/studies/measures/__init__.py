"""What a study looks at in a model: f(subject, **arguments) -> {metric: number}; what is measured lies in analysis."""
