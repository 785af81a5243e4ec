"""dask.distributed: a cluster of threads and of processes sums blocks of an array."""
import dask.array as da
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster):
        x = da.ones((1000, 1000), chunks=(500, 500))
        print((x @ x.T).sum().compute())
