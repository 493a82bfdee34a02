"""Kernels for GPUs, written in Triton. They get arrays of torch and import no other layer."""
