/**
 * A tutorial that is opened stays as it is stored. JupyterLab writes into a notebook which interpreter its kernel has,
 * marks it as changed, and would save it so.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { Widget } from '@lumino/widgets';

const OF_KERNELS = ['kernelspec', 'language_info'];

/** A notebook's content, without what the kernel that runs it says of itself. */
export function withoutKernel(content: unknown): string {
  const { metadata, ...rest } = content as { metadata?: Record<string, unknown> };
  const own = Object.entries(metadata ?? {}).filter(([key]) => !OF_KERNELS.includes(key));
  return JSON.stringify([rest, own]);
}

function isTutorial(content: unknown): boolean {
  const { metadata } = content as { metadata?: { tbuda_lab?: { tutorial?: boolean } } };
  return metadata?.tbuda_lab?.tutorial === true;
}

/** Takes the mark of a change from a tutorial that differs from its file in nothing but what a kernel says of itself. */
class UnchangedTutorial {
  private stored = '';

  constructor(private readonly context: DocumentRegistry.Context) {
    void context.ready.then(() => {
      this.keep();
      context.fileChanged.connect(this.keep, this);
      context.saveState.connect((_, state) => state === 'completed' && this.keep());
      context.model.stateChanged.connect((_, change) => change.name === 'dirty' && this.compare());
      this.compare();
    });
  }

  private keep(): void {
    const content = this.context.model.toJSON();
    this.stored = isTutorial(content) ? withoutKernel(content) : '';
  }

  /** A moment later: others hear of a change in its order. */
  private compare(): void {
    if (!this.stored) return;
    queueMicrotask(() => {
      const { model, isDisposed } = this.context;
      if (!isDisposed && model.dirty && withoutKernel(model.toJSON()) === this.stored) model.dirty = false;
    });
  }
}

export function keepTutorials(app: JupyterFrontEnd): void {
  app.docRegistry.addWidgetExtension('Notebook', {
    createNew(_: Widget, context: DocumentRegistry.Context): void {
      new UnchangedTutorial(context);
    }
  });
}
