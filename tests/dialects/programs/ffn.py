"""A program in the form of the feed-forward starter: two linear layers on digits, with a test against the host."""

import sys

import torch
from sambaflow import samba
from sambaflow.samba import utils
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta


class FFN(torch.nn.Module):
    def __init__(self, features=64, hidden=32, classes=10):
        super().__init__()
        self.gemm1 = torch.nn.Linear(features, hidden, bias=True)
        self.gemm2 = torch.nn.Linear(hidden, classes, bias=False)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, inputs, labels):
        out = self.gemm2(samba.functional.relu(self.gemm1(inputs)))
        return self.criterion(out, labels), out


def add_arguments(parser):
    parser.add_argument("--num-features", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)


def inputs_of(args):
    return (
        samba.randn(args.batch_size, args.num_features, name="image", batch_dim=0),
        samba.randint(10, (args.batch_size,), name="label", batch_dim=0),
    )


def test(args, model, inputs, traced):
    outputs = samba.session.run(input_tensors=inputs, output_tensors=traced, section_types=["FWD", "BCKWD"])
    gold = model(*[samba.to_torch(t) for t in inputs])
    gold[0].backward()
    for name, value, expected in zip(("loss", "logits"), outputs, gold, strict=True):
        utils.assert_close(value, expected.detach(), name, threshold=3e-3)
    for name, parameter in model.named_parameters():
        utils.assert_close(parameter.sn_grad, parameter.grad, f"gradient of {name}", threshold=3e-3)
    print("test passed")


def main(argv):
    utils.set_seed(256)
    args = parse_app_args(argv=argv, common_parser_fn=add_arguments)
    inputs = inputs_of(args)
    model = FFN(args.num_features)
    samba.from_torch_(model)
    optimizer = None if args.inference else samba.optim.SGD(model.parameters(), lr=args.lr)
    if args.command == "compile":
        samba.session.compile(
            model,
            inputs,
            optimizer,
            name="ffn",
            app_dir=utils.get_file_dir(__file__),
            config_dict=vars(args),
            pef_metadata=get_pefmeta(args, model),
        )
        return
    traced = utils.trace_graph(model, inputs, optimizer, pef=args.pef, mapping=args.mapping)
    if args.command == "test":
        test(args, model, inputs, traced)
    elif args.command == "run":
        for _ in range(3):
            loss, _ = samba.session.run(input_tensors=inputs, output_tensors=traced)
            print(f"loss {samba.to_torch(loss).mean().item():.6f}")
    else:
        utils.measure_performance(
            model, inputs, batch_size=args.batch_size, num_iterations=1, data_parallel=args.data_parallel
        )


if __name__ == "__main__":
    main(sys.argv[1:])
