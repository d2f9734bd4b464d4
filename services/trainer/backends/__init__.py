"""How a step is computed: one device today; FSDP2 and DeepSpeed behind the same small interface."""
