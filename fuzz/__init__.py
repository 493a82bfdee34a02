"""Random trials by the thousand: mutated model files, each of which must be refused or be a valid model."""
