/** A table. In narrow windows each row becomes a list of its cells with their heads, so that no column is cut off. */

import type { ComponentChildren } from 'preact';

interface Props {
    label: string;
    heads: string[];
    rows: { key: string; cells: ComponentChildren[] }[];
}

/** The roles are written out, because some browsers forget them if the style of a table is not that of a table. */
export function Table({ label, heads, rows }: Props) {
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label={label}>
            <table role="table">
                <thead role="rowgroup">
                    <tr role="row">
                        {heads.map((head) => (
                            <th key={head} scope="col" role="columnheader">
                                {head}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody role="rowgroup">
                    {rows.map(({ key, cells: [head, ...cells] }) => (
                        <tr key={key} role="row">
                            <th scope="row" role="rowheader">
                                {head}
                            </th>
                            {cells.map((cell, n) => (
                                <td key={n} role="cell" data-head={heads[n + 1]}>
                                    {cell}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}
