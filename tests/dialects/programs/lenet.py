"""A program in the form of the LeNet tutorial: convolutions, pooling, an optimizer whose rate comes with each run."""

import sys

import torch
from sambaflow import __version__, samba
from sambaflow.samba import utils
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta


class LeNet(torch.nn.Module):
    def __init__(self, side=4, classes=10):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 2, 3, padding=1)
        self.maxpool1 = torch.nn.MaxPool2d(2)
        self.conv2 = torch.nn.Conv2d(2, 2, 3, padding=1)
        self.maxpool2 = torch.nn.MaxPool2d(2)
        self.fc1 = torch.nn.Linear(2 * (side // 4) ** 2, 16)
        self.fc2 = torch.nn.Linear(16, 16)
        self.fc3 = torch.nn.Linear(16, classes)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, image, label):
        x = self.maxpool1(torch.relu(self.conv1(image)))
        x = self.maxpool2(torch.relu(self.conv2(x)))
        x = torch.reshape(x, [x.shape[0], -1])
        out = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))
        return self.criterion(out, label), out


def common_arguments(parser):
    parser.add_argument("-b", "--batch-size", type=int, default=1, help="the program's own")
    parser.add_argument("--side", type=int, default=4)


def run_arguments(parser):
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--num-steps", type=int, default=2)


def inputs_of(args):
    return (
        samba.randn(args.batch_size, 1, args.side, args.side, name="image", batch_dim=0),
        samba.randint(10, (args.batch_size,), name="label", batch_dim=0),
    )


def train(args, model, inputs, optimizer):
    optimizer_state = optimizer.state_dict()
    optimizer.load_state_dict(optimizer_state)
    numbers = {"lr": args.lr, "momentum": args.momentum, "weight_decay": 0.0}
    for step in range(args.num_steps):
        loss, _ = samba.session.run(inputs, model.output_tensors, hyperparam_dict=numbers)
        print(f"step {step} loss {samba.to_torch(loss).mean().item():.6f}")
    samba.session.to_cpu(model)
    _, out = samba.session.run(inputs, model.output_tensors, section_types=["fwd"])
    utils.assert_close(out, model(*map(samba.to_torch, inputs))[1].detach(), "logits", threshold=1e-4)
    print(f"trained, version {__version__}")


def main(argv):
    utils.set_seed(1)
    args = parse_app_args(argv=argv, dev_mode=True, common_parser_fn=common_arguments, run_parser_fn=run_arguments)
    inputs = inputs_of(args)
    model = LeNet(args.side)
    samba.from_torch_model_(model)
    optimizer = None if args.inference else samba.optim.SGD(model.parameters(), lr=0.0, momentum=0.0)
    if args.command == "compile":
        samba.session.compile(
            model,
            inputs,
            optimizer,
            name="lenet",
            app_dir=utils.get_file_dir(__file__),
            squeeze_bs_dim=False,
            config_dict=vars(args),
            pef_metadata=get_pefmeta(args, model),
        )
        return
    utils.trace_graph(model, inputs, optimizer, pef=args.pef, mapping=args.mapping)
    train(args, model, inputs, optimizer)


if __name__ == "__main__":
    main(sys.argv[1:])
