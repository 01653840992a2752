"""What the cores of an epoch keep in L1 and which extra streams they take, as router and pipe generator count.

`buffers` has the sizes as integer expressions on arrays over candidates, which balancer, checker and views share;
`usage` and `router` put them on the cores of an op of which the lists of tiles are known (routing.md#l1-of-a-core).
"""
