"""Makes the package `frtop-native`, `make native-package`. Not part of frtop."""
