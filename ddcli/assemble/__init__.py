"""Where plan and engine meet: physical nodes become operators over lanes."""
