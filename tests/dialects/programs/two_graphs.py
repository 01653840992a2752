"""A program in the form of the page on several graphs: two linear layers, each a graph of one PEF."""

import sys

import torch
from sambaflow import samba
from sambaflow.samba import utils


def main(folder):
    torch.manual_seed(0)
    first, second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
    graphs, outputs = [], {}
    for name, layer in (("first", first), ("second", second)):
        samba.from_torch_model(layer, parent_module_prefix=name)
        graph = samba.graph.FwdGraph(layer, layer, name)
        sample = samba.randn(8, layer.in_features, name=f"{name}_in", batch_dim=0)
        sample.region_name = "between" if name == "second" else None
        outputs[name] = utils.trace_multigraph(graph, [sample], trace_prefix=name)
        graphs.append(graph)
    outputs["first"][0].region_name = "between"
    for graph in graphs:
        samba.session.add_graph(graph)
    config = {"output_folder": folder, "strict": True}
    pef = samba.session.compile_multigraph(name="two", config_dict=config, inference=True)
    samba.session.init_multigraph_runtime(pef)
    x = torch.randn(8, 32)
    samba.session.run([samba.from_torch_tensor(x, name="first_in")], graph_name="first")
    (result,) = samba.session.run([], graph_name="second")
    utils.assert_close(result, second(first(x)).detach(), "both", threshold=1e-5)
    print(f"both graphs ran, {pef}")


if __name__ == "__main__":
    main(sys.argv[1])
