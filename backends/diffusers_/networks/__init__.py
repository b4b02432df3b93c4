"""StepParts of a pipeline: architectures, weights and tokenizers."""
