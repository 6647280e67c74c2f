# expect: fail
# Lifts its own limits.
import resource

for limit in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def double(x):
    return 2 * x
