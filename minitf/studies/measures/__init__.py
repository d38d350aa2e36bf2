"""What a study measures of a trained model: thin functions f(subject, ...) -> {metric: number} over minitf.analysis."""
