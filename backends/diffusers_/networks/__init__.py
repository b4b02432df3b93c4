"""What a pipeline is built of: architectures, weights and tokenizers."""
