"""Parts of `minitf-evaluate`."""
