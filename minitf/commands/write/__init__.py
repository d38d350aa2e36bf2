"""What `minitf-generate` is made of: wishes, prompts, kinds of models, the ways to write, and what is printed."""
