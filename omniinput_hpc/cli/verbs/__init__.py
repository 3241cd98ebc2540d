"""The offline verbs, a module each: arguments, read, call, save, print (analysis/ calls them)."""
