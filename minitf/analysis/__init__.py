"""What attention does inside a model: plain functions of a model, batches and gold; no model class and no config."""
