/** The notebook that the launcher card opens: a small model of the user's own to start from. */
const MARKDOWN = [
  '# Bring-up',
  '',
  'Put your model in place of the one below. `BringUp` traces it, places it on the device, runs it and compares the',
  'outputs with torch.'
];

const model = (device: string) => [
  'import torch',
  'from tbuda_lab.widgets import BringUp',
  '',
  'model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))',
  'inputs = torch.randn(1, 128, 256)',
  '',
  `bring_up = BringUp(model, inputs, device="${device}")`,
  'bring_up'
];

function lines(text: string[]): string[] {
  return text.map((line, i) => (i < text.length - 1 ? `${line}\n` : line));
}

/** Content of a new notebook, nbformat 4.5. */
export function bringUpNotebook(device = 'wormhole_b0'): Record<string, unknown> {
  return {
    nbformat: 4,
    nbformat_minor: 5,
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
    cells: [
      { id: 'intro', cell_type: 'markdown', metadata: {}, source: lines(MARKDOWN) },
      { id: 'bring-up', cell_type: 'code', metadata: {}, execution_count: null, outputs: [], source: lines(model(device)) }
    ]
  };
}
