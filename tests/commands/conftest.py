from runs import toy

__all__ = ["toy"]
