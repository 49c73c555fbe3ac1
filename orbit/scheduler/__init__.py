"""orbit-dispatch: worker sessions over WebSocket, and the ticks that move their tasks."""
