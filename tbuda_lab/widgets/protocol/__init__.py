"""What crosses between kernel and page: frames, messages, shared traits."""
