"""A program in the form of SambaFlow's starters: one linear layer that tells handwritten digits apart.

Its arguments come first (compile, run, test or measure-performance); nothing in it knows on what it runs.
"""

import sys

import sambaflow.samba.utils as utils
import torch
import torchvision
from sambaflow import samba
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.dataset.mnist import dataset_transform
from sambaflow.samba.utils.pef_utils import get_pefmeta

PIXELS, DIGITS = 784, 10


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(PIXELS, DIGITS)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, pixels, digit):
        scores = self.layer(pixels)
        return self.loss(scores, digit), scores


def add_arguments(parser):
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--num-features", type=int, default=PIXELS)
    parser.add_argument("--num-epochs", type=int, default=1)
    parser.add_argument("--data-folder", default="mnist_data")


def batches(args, train):
    data = torchvision.datasets.MNIST(args.data_folder, train=train, transform=dataset_transform(vars(args)))
    return torch.utils.data.DataLoader(data, batch_size=args.batch_size, shuffle=False, drop_last=True)


def named(pixels, digit):
    return [
        samba.from_torch_tensor(pixels, name="pixels", batch_dim=0),
        samba.from_torch_tensor(digit, name="digit", batch_dim=0),
    ]


def train(args, model, outputs):
    numbers = {"lr": args.lr, "momentum": args.momentum}
    for _ in range(args.num_epochs):
        for pixels, digit in batches(args, train=True):
            samba.session.run(input_tensors=named(pixels, digit), output_tensors=outputs, hyperparam_dict=numbers)
    samba.session.to_cpu(model)
    with torch.no_grad():
        hits = [model(pixels, digit)[1].argmax(1) == digit for pixels, digit in batches(args, train=False)]
    print(f"accuracy {100 * torch.cat(hits).float().mean().item():.4f}")


def main(argv):
    utils.set_seed(256)
    args = parse_app_args(argv=argv, common_parser_fn=add_arguments)
    sample = (
        samba.randn(args.batch_size, PIXELS, name="pixels", batch_dim=0),
        samba.randint(DIGITS, (args.batch_size,), name="digit", batch_dim=0),
    )
    torch.manual_seed(3)
    model = samba.from_torch_model_(Classifier())
    optimizer = None
    if not args.inference:
        optimizer = samba.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    if args.command == "compile":
        samba.session.compile(
            model,
            sample,
            optimizer,
            name="digits",
            config_dict=vars(args),
            app_dir=utils.get_file_dir(__file__),
            pef_metadata=get_pefmeta(args, model),
        )
        return
    outputs = utils.trace_graph(model, sample, optimizer, pef=args.pef)
    if args.command == "measure-performance":
        utils.measure_performance(model, sample, batch_size=args.batch_size, num_iterations=args.num_iterations)
    elif args.command == "test":
        pixels, digit = next(iter(batches(args, train=False)))
        _, scores = samba.session.run(input_tensors=named(pixels, digit), output_tensors=outputs, section_types=["fwd"])
        utils.assert_close(samba.to_torch(scores), model(pixels, digit)[1].detach(), "scores", threshold=1e-4)
        print("test passed")
    else:
        train(args, model, outputs)


if __name__ == "__main__":
    main(sys.argv[1:])
